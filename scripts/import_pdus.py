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
    "id", "name", "kind", "rack_units", "inlet", "inlets", "region", "continuous_amps", "max_watts",
    "c13", "c15", "c19", "c39", "other_outlets", "outlets_basis", "source", "date", "note",
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
# NetBox gives no amps for IEC 60309; these come from the manufacturers' product names and from the ratings in the
# descriptions of the files: 11 kVA at 400 V is 16 A, 22 kW at 400 V and 23 kVA at 415 V are 32 A
RATED = {
    "AP8853": "iec-60309-32a-2p-e-6h-plug",
    "AP8953": "iec-60309-32a-2p-e-6h-plug",
    "AP8653": "iec-60309-32a-2p-e-6h-plug",
    "AP7853": "iec-60309-32a-2p-e-6h-plug",
    "AP8881": "iec-60309-16a-3p-n-e-6h-plug",
    "AP8886": "iec-60309-32a-3p-n-e-6h-plug",
    "AP8888": "iec-60309-32a-3p-n-e-6h-plug",
    "APDU10350SW": "iec-60309-32a-3p-n-e-6h-plug",
    "AP7526": "iec-60309-32a-3p-n-e-6h-plug",
    "EMAB33": "iec-60309-32a-3p-n-e-6h-plug",
}
# the earth position that NetBox has, where it cannot be right at 400 V
WRONG_HOURS = {"AP8886": "9h", "AP7526": "9h", "EMAB33": "4h"}
COMBINATION = "eaton-c39"
LENOVO = (
    "Lenovo 1U Switched and Monitored 3-Phase PDUs, product guide of 2024-06-03 "
    "(manualspro.net/48986)"
)
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
    },
    {
        "id": "apc-apdu11450me",
        "name": "APC APDU11450ME",
        "kind": "pdu",
        "rack_units": 0,
        "inlet": "iec-60309-60a-3p-n-e-6h-plug",
        "inlets": 1,
        "region": "north-america",
        "continuous_amps": 48,
        "max_watts": 34600,
        "c13": 21,
        "c39": 21,
        "outlets_basis": "listed",
        "source": "Schneider's product details (34.6 kW at 415 V, 60 A, 560P6; 21 C13/C15 and 21 combination"
        " outlets) as a public NetBox import of a purchase quotes them",
        "date": "2026-11-18",
        "note": "Read second-hand: Schneider's own page was not read.",
    },
    {
        "id": "lenovo-1u-18-48a-wye-etl",
        "name": "Lenovo 1U, 18 outlets, 48 A wye (ETL)",
        "kind": "pdu",
        "rack_units": 1,
        "inlet": "iec-60309-60a-3p-n-e-6h-plug",
        "inlets": 1,
        "region": "north-america",
        "continuous_amps": 48,
        "c39": 18,
        "outlets_basis": "listed",
        "source": LENOVO,
        "date": "2024-06-03",
        "note": "For the US and Canada. The guide's excerpt does not name the plug: 48 A continuous is assumed to be"
        " the 60 A plug.",
    },
    {
        "id": "lenovo-1u-18-48a-wye-ce",
        "name": "Lenovo 1U, 18 outlets, 48 A wye (CE)",
        "kind": "pdu",
        "rack_units": 1,
        "inlet": "iec-60309-60a-3p-n-e-6h-plug",
        "inlets": 1,
        "region": "iec",
        "continuous_amps": 48,
        "c39": 18,
        "outlets_basis": "listed",
        "source": LENOVO,
        "date": "2024-06-03",
        "note": "Outside the US, Canada, and Japan. The guide's excerpt does not name the plug: the 63 A plug is"
        " assumed.",
    },
    {
        "id": "lenovo-1u-12-32a-wye",
        "name": "Lenovo 1U, 12 outlets, 32 A wye",
        "kind": "pdu",
        "rack_units": 1,
        "inlet": "iec-60309-32a-3p-n-e-6h-plug",
        "inlets": 1,
        "c39": 12,
        "outlets_basis": "listed",
        "source": LENOVO,
        "date": "2024-06-03",
        "note": "The guide's excerpt does not name the plug: the 32 A plug is assumed.",
    },
    {
        "id": "estimate-400v-63a-0u",
        "name": "0U PDU for 400 V 63 A (estimate)",
        "kind": "pdu",
        "rack_units": 0,
        "inlet": "iec-60309-60a-3p-n-e-6h-plug",
        "inlets": 1,
        "region": "iec",
        "c13": 21,
        "c39": 21,
        "outlets_basis": "estimate",
        "source": "arithmetic: sqrt(3) x 400 V x 63 A is 43.6 kVA; no product's data sheet was found",
        "date": "2026-11-18",
        "note": "Not a product: it stands for a vertical unit of that rating, with the outlets of the APC"
        " APDU11450ME. Name the 'pdu' that you would buy.",
    },
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
    hours = WRONG_HOURS.get(row["model"])
    note = f"NetBox lists the inlet as {hours}; at 400 V it is 6h." if hours else ""
    others = dict(pair.split(":") for pair in filter(None, row["other_outlets"].split(";")))
    combination = others.pop(COMBINATION, row["n_c39"] or 0)
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
        "c39": combination,
        "other_outlets": ";".join(":".join(pair) for pair in others.items()),
        "outlets_basis": "listed",
        "source": SOURCE,
        "date": DATE,
        "note": note,
    }


if __name__ == "__main__":
    main(sys.argv[1])
