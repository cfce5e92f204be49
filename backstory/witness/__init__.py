"""The witness: sends the heads of a home's streams to a file, a command or an address outside of the log.

`worker` queues and sends in the background, `destinations` knows the places that heads go to, `sent` remembers what was
sent, `door` is what a home uses. It may import `ledger` and `projections`.
"""
