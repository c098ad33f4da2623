"""What happened while queries ran: progress, totals, states; the terminal and the page read it from here."""
