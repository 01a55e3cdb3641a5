"""What a client decides by protocol generation: one contract, an implementation an era."""
