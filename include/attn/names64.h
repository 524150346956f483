/*
 * names64.h - the double-precision names of every function of the rooms that are compiled once per
 * precision (see real.h). A test compares this list with the symbols of the library.
 */
#ifndef ATTN_NAMES64_H
#define ATTN_NAMES64_H

#define attn_alibi_slopes           attn64_alibi_slopes
#define attn_broadcast_strides      attn64_broadcast_strides
#define attn_clip_gradient          attn64_clip_gradient
#define attn_cross_entropy_backward attn64_cross_entropy_backward
#define attn_cross_entropy_forward  attn64_cross_entropy_forward
#define attn_default_scale          attn64_default_scale
#define attn_dropout_backward       attn64_dropout_backward
#define attn_dropout_forward        attn64_dropout_forward
#define attn_embedding_backward     attn64_embedding_backward
#define attn_embedding_forward      attn64_embedding_forward
#define attn_fma_peak               attn64_fma_peak
#define attn_gradcheck_memory       attn64_gradcheck_memory
#define attn_gradcheck_project      attn64_gradcheck_project
#define attn_gradcheck_result_name  attn64_gradcheck_result_name
#define attn_gradcheck_run          attn64_gradcheck_run
#define attn_kv_cache_init          attn64_kv_cache_init
#define attn_kv_cache_length        attn64_kv_cache_length
#define attn_kv_cache_memory        attn64_kv_cache_memory
#define attn_kv_cache_reset         attn64_kv_cache_reset
#define attn_kv_cache_truncate      attn64_kv_cache_truncate
#define attn_linear_backward        attn64_linear_backward
#define attn_linear_forward         attn64_linear_forward
#define attn_merge_heads_backward   attn64_merge_heads_backward
#define attn_merge_heads_forward    attn64_merge_heads_forward
#define attn_mha_backward           attn64_mha_backward
#define attn_mha_config_check       attn64_mha_config_check
#define attn_mha_d_head             attn64_mha_d_head
#define attn_mha_decode             attn64_mha_decode
#define attn_mha_decode_memory      attn64_mha_decode_memory
#define attn_mha_forward            attn64_mha_forward
#define attn_mha_keys_backward      attn64_mha_keys_backward
#define attn_mha_keys_forward       attn64_mha_keys_forward
#define attn_mha_kv_heads           attn64_mha_kv_heads
#define attn_mha_memory             attn64_mha_memory
#define attn_mha_num_params         attn64_mha_num_params
#define attn_mha_params_init        attn64_mha_params_init
#define attn_mha_params_view        attn64_mha_params_view
#define attn_mha_weights            attn64_mha_weights
#define attn_model_backward         attn64_model_backward
#define attn_model_config_check     attn64_model_config_check
#define attn_model_forward          attn64_model_forward
#define attn_model_layer_config     attn64_model_layer_config
#define attn_model_layer_seed       attn64_model_layer_seed
#define attn_model_layer_view       attn64_model_layer_view
#define attn_model_memory           attn64_model_memory
#define attn_model_num_params       attn64_model_num_params
#define attn_model_params_init      attn64_model_params_init
#define attn_model_params_view      attn64_model_params_view
#define attn_padding_from_lengths   attn64_padding_from_lengths
#define attn_read_bandwidth         attn64_read_bandwidth
#define attn_rope_backward          attn64_rope_backward
#define attn_rope_forward           attn64_rope_forward
#define attn_score_terms_backward   attn64_score_terms_backward
#define attn_score_terms_forward    attn64_score_terms_forward
#define attn_scores_backward        attn64_scores_backward
#define attn_scores_forward         attn64_scores_forward
#define attn_sdpa_backward          attn64_sdpa_backward
#define attn_sdpa_forward           attn64_sdpa_forward
#define attn_sdpa_memory            attn64_sdpa_memory
#define attn_sdpa_weights           attn64_sdpa_weights
#define attn_sgd_step               attn64_sgd_step
#define attn_softmax_backward       attn64_softmax_backward
#define attn_softmax_forward        attn64_softmax_forward
#define attn_softmax_sinks_backward attn64_softmax_sinks_backward
#define attn_softmax_sinks_forward  attn64_softmax_sinks_forward
#define attn_split_heads_backward   attn64_split_heads_backward
#define attn_split_heads_forward    attn64_split_heads_forward
#define attn_strides_bhtd           attn64_strides_bhtd
#define attn_strides_bthd           attn64_strides_bthd
#define attn_values_backward        attn64_values_backward
#define attn_values_forward         attn64_values_forward

#endif
