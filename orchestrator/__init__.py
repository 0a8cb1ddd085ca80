"""What users call: sessions, planning, the cluster and the command line."""
