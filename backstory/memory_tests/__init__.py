"""Memory tests: what a memory must learn from conversations, replayed in a scratch home. May import `home`.

`file` is the file of a test, `steps` the updates to make, `kept_replies` the answers kept for them, `replay` makes the
updates, `judging` says which expectations hold (`likeness`: which texts are alike), `run` does all of it for one file,
`comparison` compares with an earlier result, and `incident` makes a test of a fact or a commit.
"""
