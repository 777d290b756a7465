module github.com/mqrun/mqrun/pluginsdk/go

go 1.24.0
