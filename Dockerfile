# The command line for processors:
#     docker build -t simplexdp . && docker run --rm simplexdp train
FROM python:3.11-slim
WORKDIR /app
COPY make.py pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN useradd --create-home person \
    && chown person /app
USER person
RUN python3 make.py cpu && python3 make.py train --steps 1 --quiet && rm -rf runs
ENTRYPOINT [".venv/bin/simplexdp"]
