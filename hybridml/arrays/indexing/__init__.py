"""Reading and writing of parts: keys, masks, index arrays, scattering, segments."""
