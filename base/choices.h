/* base/choices.h - the values of options with a fixed choice, as numbers, since ranks receive them as such. */
#ifndef BASE_CHOICES_H
#define BASE_CHOICES_H

enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum step_choice { STEP_AUTO, STEP_SEPARATE, STEP_PERSISTENT }; /* how decode steps run on a GPU */
/* How a checkpoint is read: the ranks of a node read each byte once, for all of them, or each rank reads its own
 * slices. */
enum load_way { LOAD_WAY_AUTO, LOAD_TOGETHER, LOAD_ALONE };
enum kv_choice { KV_AUTO, KV_FP8, KV_FP8_E4M3 };          /* type of the KV cache; the last two mean the same */
enum weights_choice { WEIGHTS_AS_THEY_ARE, WEIGHTS_FP8 }; /* the type to which weights of 16 or 32 bits are converted */
enum inputs_choice { INPUTS_OFF, INPUTS_AUTO, INPUTS_ON }; /* activations quantised as the checkpoint declares them */
enum load_format { LOAD_AUTO, LOAD_SAFETENSORS, LOAD_DUMMY };

#endif
