"""The links of this machine, measured one by one and set beside what they should carry."""
