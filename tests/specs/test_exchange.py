"""Options of the gradient exchange, in files and in stored records."""

import json

import pytest
from pydantic import ValidationError

from gpuyard.specs import ExchangeOptions, Workload


def test_a_bucket_is_the_same_however_its_size_is_written() -> None:
    by_size = ExchangeOptions.model_validate({"bucket": "25 MiB"})
    assert by_size == ExchangeOptions(bucket_mb=25)
    assert hash(by_size) == hash(ExchangeOptions(bucket_mb=25))
    assert by_size.bucket_bytes == 25 * 2**20
    assert by_size.model_dump()["bucket_mb"] == 25


def test_an_option_at_its_default_is_not_in_stored_records() -> None:
    stored = {"compress": "fp16", "accumulate": 4, "bucket_mb": 5.0, "local_sgd": 1}
    options = ExchangeOptions.model_validate_json(json.dumps(stored))
    assert options.model_dump(mode="json") == stored
    assert ExchangeOptions(hierarchical=True).model_dump()["hierarchical"] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket": "1 MiB", "bucket_mb": 1}, "leave out one"),
        ({"bucket": "0 MiB"}, "greater than 0"),
        ({"bucket": "5 parsecs"}, "not a unit of a size"),
        ({"local_sgd": 2, "compress": "powersgd:2"}, "use fp16 or bf16"),
        ({"local_sgd": 2, "bucket": 1e6}, "local SGD has no buckets"),
        ({"compress": "powersgd:0"}, "should match pattern"),
    ],
)
def test_incompatible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ExchangeOptions.model_validate(options)


def test_a_workload_is_stored_without_a_gradient_dtype_unless_it_has_one() -> None:
    plain = Workload(name="r", model="resnet50")
    assert "gradient_dtype" not in plain.model_dump(mode="json")
    narrow = plain.model_copy(update={"gradient_dtype": "fp16"})
    assert narrow.model_dump(mode="json")["gradient_dtype"] == "fp16"
    assert Workload.model_validate(narrow.model_dump(mode="json")) == narrow
