"""Users of a home: whose memories there are, and the removal of one. Imports the stores, and no door."""
