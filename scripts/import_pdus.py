"""Write src/gpuyard/catalog/data/pdus.csv from NetBox device types and the few rows that NetBox lacks.

Usage: python scripts/import_pdus.py pdu_netbox.csv
"""

import csv
import re
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "gpuyard" / "catalog" / "data" / "pdus.csv"
SOURCE = "netbox-community/devicetype-library @f6695b3d (CC0-1.0)"
DATE = "2026-08-19"
COLUMNS = (
    "id", "name", "kind", "rack_units", "inlet", "inlets", "max_watts", "c13", "c15", "c19", "c39",
    "other_outlets", "outlets_basis", "source", "date", "note",
)  # fmt: skip

INLETS = {
    "iec-60320-c14": "c14",
    "iec-60320-c20": "c20",
    **{
        f"nema-{name}p": f"nema-{name}p"
        for name in (
            "5-15",
            "5-20",
            "l5-20",
            "l5-30",
            "l6-20",
            "l6-30",
            "l14-30",
            "l15-30",
            "l21-30",
        )
    },
    "cs8365c": "cs8365c",
}
# NetBox gives no amps for IEC 60309; these come from the manufacturers' product names
RATED = {
    "AP8853": "iec-60309-32a-2p-e-6h-plug",
    "AP8953": "iec-60309-32a-2p-e-6h-plug",
    "AP8653": "iec-60309-32a-2p-e-6h-plug",
    "AP7853": "iec-60309-32a-2p-e-6h-plug",
    "AP8881": "iec-60309-16a-3p-n-e-6h-plug",
    "AP8886": "iec-60309-32a-3p-n-e-6h-plug",
}
BY_HAND = [
    {
        "id": "apc-ap8966",
        "name": "APC AP8966",
        "kind": "pdu",
        "rack_units": 0,
        "inlet": "iec-60309-60a-3p-e-9h-plug",
        "inlets": 1,
        "c13": 30,
        "c19": 12,
        "outlets_basis": "estimate",
        "source": "three-phase 208 V, 60 A plug, 48 A derated, 17.3 kVA by its maker",
        "date": "2026-11-16",
        "note": "The outlet counts were not found: they are an estimate, taken from the AP8886 of the"
        " same family. Its plug is IEC 60309 60 A 3P+E.",
    }
]
UPS = re.compile(
    r"UPS|^(SM[TCXU]|SUA?|SRT|SU|BR|BX|BN|BC|SC|5[PS]X|9PX|9SX)[\d A-Z]|SMART\d|RTXL", re.IGNORECASE
)


def main(source: str) -> None:
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    imported = map(convert_row, csv.DictReader(lines[1:]))
    rows = sorted([*BY_HAND, *imported], key=lambda row: str(row["id"]))
    temporary = TARGET.with_suffix(".new")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(TARGET)
    print(f"{len(rows)} rows in {TARGET.name}")


def convert_row(row: dict[str, str]) -> dict[str, object]:
    inlets = row["inlet_types"].split(";") if row["inlet_types"] else []
    inlet = RATED.get(row["model"]) or (INLETS.get(inlets[0], "") if inlets else "")
    watts = row["inlet_max_w"].split(";")[0]
    corrected = row["model"] == "AP8886"
    note = "NetBox lists the inlet as 9h; at 400 V it is 6h." if corrected else ""
    if not inlet:
        note = f"Inlet {row['inlet_types'] or 'not named'}: its amps are not known."
    return {
        "id": re.sub(r"[^a-z0-9]+", "-", f"{row['manufacturer']} {row['model']}".lower()).strip(
            "-"
        ),
        "name": f"{row['manufacturer']} {row['model']}",
        "kind": "ups" if UPS.search(row["model"]) else "ats" if len(inlets) > 1 else "pdu",
        "rack_units": int(float(row["u_height"] or 0)),
        "inlet": inlet,
        "inlets": max(len(inlets), 1),
        "max_watts": watts,
        "c13": row["n_c13"] or 0,
        "c15": row["n_c15"] or 0,
        "c19": row["n_c19"] or 0,
        "c39": row["n_c39"] or 0,
        "other_outlets": row["other_outlets"],
        "outlets_basis": "listed",
        "source": SOURCE,
        "date": DATE,
        "note": note,
    }


if __name__ == "__main__":
    main(sys.argv[1])
