"""What the app knows and does, without HTML and without Gradio: the library, the queue of requests, runs,
conversations, settings. ``services`` joins it all into one object."""
