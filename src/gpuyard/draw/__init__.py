"""Pictures: SVG files that stand alone, and drawings for a terminal. They draw values, and reckon none."""
