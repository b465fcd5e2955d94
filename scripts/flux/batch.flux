#!/bin/bash
# scripts/flux/batch.flux - one batch in one Flux allocation. It ends before the time limit, with status 75 if lines are left; submit
# the same again and it resumes where it stopped:
#
#   MODEL=/models/Llama-3-8B INPUT=prompts.jsonl OUTPUT=results.jsonl \
#       flux batch -N1 --exclusive -t 4h batch.flux
#
# Other settings, from the environment: RANKS (per node; default 1), LOCKSTEP (the program; default: lockstep on the PATH), OPTIONS
# (further arguments).
#
# flux: --job-name=lockstep-batch

# module load openmpi cuda       # what your site needs to find MPI and CUDA

: "${MODEL:?the folder of the model}" "${INPUT:?a file of requests}" "${OUTPUT:?the file of results}"
nodes=$(flux resource list -s up -no '{nnodes}')
ranks=$((nodes * ${RANKS:-1}))
left=$(flux job timeleft 2>/dev/null) # seconds
case $left in *[!0-9]* | '') left= ;; esac

exec flux run -N "$nodes" -n "$ranks" --exclusive "${LOCKSTEP:-lockstep}" batch --model "$MODEL" --input "$INPUT" \
    --output "$OUTPUT" ${left:+--max-walltime "$left"} ${OPTIONS:-}
