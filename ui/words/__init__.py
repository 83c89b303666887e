"""Every word that a person sees, by panel or topic. ``{name}`` is filled in where the string is used."""
