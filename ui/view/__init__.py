"""Values and events -> HTML and SVG, as pure functions. Nothing here imports Gradio or answers a request."""
