"""What the app does with the engine: one queue, what stands in it, how long it takes. No HTML, no Gradio."""
