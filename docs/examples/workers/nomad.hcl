# A service job: three workers, each of which goes on until it is stopped.
job "ralph-worker" {
  type = "service"

  group "worker" {
    count = 3

    task "worker" {
      driver = "docker"

      # From SIGTERM to SIGKILL: the iteration is ended and the run given back.
      kill_timeout = "10m"
      kill_signal  = "SIGTERM"

      config {
        image = "registry.example/ralph:0.1.0"
        args  = ["worker", "--label", "pool=nomad"]
      }

      env {
        RALPH_HOME = "${NOMAD_ALLOC_DIR}/ralph"
      }

      # RALPH_DB_URL and the credentials of model services.
      template {
        data        = "{{ with nomadVar \"nomad/jobs/ralph-worker\" }}{{ range .Tuples }}{{ .K }}={{ .V }}\n{{ end }}{{ end }}"
        destination = "secrets/worker.env"
        env         = true
      }
    }
  }
}
