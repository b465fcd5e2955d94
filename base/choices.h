/* base/choices.h - what options let a user choose, and what ranks are told of it by number. */
#ifndef BASE_CHOICES_H
#define BASE_CHOICES_H

enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum step_choice { STEP_AUTO, STEP_SEPARATE, STEP_PERSISTENT }; /* how decode steps run on a GPU */
/* Who reads a checkpoint: a node's ranks each byte once, for all of them; or each rank what it holds. */
enum load_way { LOAD_WAY_AUTO, LOAD_TOGETHER, LOAD_ALONE };
enum load_format { LOAD_AUTO, LOAD_SAFETENSORS, LOAD_DUMMY };

#endif
