"""What a door uses so that memory never breaks an agent's answer: deliveries that wait, reads that have a way out."""

from __future__ import annotations

from backstory.delivery.door import Deliveries
from backstory.delivery.lines import Limits
from backstory.delivery.waiting import Waiting

__all__ = ["Deliveries", "Limits", "Waiting"]
