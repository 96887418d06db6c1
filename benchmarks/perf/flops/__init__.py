"""What models cost by closed form: operations and parameters, and v2's Tables VI and VII."""
