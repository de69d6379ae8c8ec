SELECT value FROM holdfast.meta WHERE name = $1
