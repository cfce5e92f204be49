"""What the host stores."""
