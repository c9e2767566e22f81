"""Shows the rules of a shared server."""

from dataclasses import asdict

from gpuyard.report.answer import Answer, Table
from gpuyard.share.config import Rules


def rules_answer(rules: Rules, *, dry_run: bool) -> Answer:
    """List all rules; after a dry run, as what they would be."""
    document = asdict(rules)
    rows = [[name.replace("_", " "), _format_rule(value)] for name, value in document.items()]
    title = "Would be" if dry_run else ""
    return Answer([Table(title, ("policy", "value"), rows)], document, verb="share")


def _format_rule(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{group}={limit:g}" for group, limit in value.items()) or "none"
    return "none" if value is None else str(value)
