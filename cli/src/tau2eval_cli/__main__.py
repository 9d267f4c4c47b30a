"""`python -m tau2eval_cli` is `tau2-eval`."""

from tau2eval_cli.main import main

if __name__ == "__main__":
    main()
