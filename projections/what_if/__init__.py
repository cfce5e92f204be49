"""What-if: the same history under another policy, model or prompt. May import `history`."""
