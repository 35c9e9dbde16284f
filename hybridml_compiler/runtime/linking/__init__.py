"""From object code to addresses: ELF files, images of linked code, and what loads them."""
