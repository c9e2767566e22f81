"""Standalone SVG pictures and terminal drawings. Modules here only draw values; other packages calculate them."""
