"""What runs around calls: the hooks of a layer, and the layers that come with Ferrule."""
