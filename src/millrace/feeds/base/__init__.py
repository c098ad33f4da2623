"""What every feed has: its interface, and the pump that sends its records."""
