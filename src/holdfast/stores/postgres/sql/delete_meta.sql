DELETE FROM holdfast.meta WHERE name = $1
