"""Models: the port to a model, OpenAI's protocol behind it, and recorded answers. May import `core` and `text`."""
