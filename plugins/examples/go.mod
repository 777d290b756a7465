module github.com/mqrun/mqrun/plugins/examples

go 1.24.0

require github.com/mqrun/mqrun/pluginsdk/go v0.0.0

replace github.com/mqrun/mqrun/pluginsdk/go => ../../pluginsdk/go
