"""What values from outside may cost: bounds on fields, accounts of what is held, shares of what is kept."""
