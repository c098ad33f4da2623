"""Records that could not be used: their form, where they are kept, and how they are sent again."""
