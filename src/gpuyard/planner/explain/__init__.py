"""Why a plan chose what it chose: readable choices, reasons and assumptions, and why the alternatives lost."""
