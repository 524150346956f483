/*
 * attn.h - all of attn. Each header can be included alone; to read, start with mha.h.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include <attn/arena.h>
#include <attn/cross_entropy.h>
#include <attn/dropout.h>
#include <attn/embedding.h>
#include <attn/gradcheck.h>
#include <attn/heads.h>
#include <attn/isa.h>
#include <attn/kv_cache.h>
#include <attn/linear.h>
#include <attn/mask.h>
#include <attn/mha.h>
#include <attn/model.h>
#include <attn/random.h>
#include <attn/real.h>
#include <attn/rope.h>
#include <attn/safetensors.h>
#include <attn/score_terms.h>
#include <attn/scores.h>
#include <attn/sdpa.h>
#include <attn/sgd.h>
#include <attn/softmax.h>
#include <attn/status.h>
#include <attn/values.h>

#endif
