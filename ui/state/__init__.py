"""What the app knows and does, without HTML and without Gradio: the library, conversations, runs,
settings. ``services`` joins it all into one object."""
