"""Everything measured of one device by one command, in one file that can be sent."""
