"""Users of a home: whose memories there are; removal and archive of a user. Imports the stores, and no door."""
