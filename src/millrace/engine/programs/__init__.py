"""Programs of the user's own (`millrace exec`) and the DStreams in them."""
