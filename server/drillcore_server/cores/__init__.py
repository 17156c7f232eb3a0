"""Core files as the server writes them. How they are read is `drillcore.cores`, in the client."""
