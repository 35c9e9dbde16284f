"""Programs that train real models on real data, eagerly and traced: ``python -m examples.demo`` runs them all."""
