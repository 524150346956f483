/* Parameters in a safetensors file, one tensor each, named as in most frameworks. */
#include "train.h"

#include <attn/safetensors.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    char name[64];
    size_t rank, dims[2];
    attn_real *data;
} part;

enum { PER_LAYER = 10, OTHERS = 4, SETTINGS = 5 };

static void add(part *parts, size_t *count, const char *name, attn_real *data, size_t rows,
                size_t columns) {
    if (!data)
        return;
    part *p = &parts[(*count)++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->rank = columns ? 2 : 1;
    p->dims[0] = rows;
    p->dims[1] = columns;
    p->data = data;
}

static void add_layer(part *parts, size_t *count, const attn_model_config *model,
                      const attn_model_params *params, size_t layer) {
    attn_mha_config config = attn_model_layer_config(model);
    attn_mha_params w = attn_model_layer_view(model, params, layer);
    size_t d = model->d_model, heads = model->num_heads;
    size_t inner = heads * attn_mha_d_head(&config);
    size_t kv = attn_mha_kv_heads(&config) * attn_mha_d_head(&config);
    const struct {
        const char *name;
        attn_real *data;
        size_t rows, columns;
    } list[PER_LAYER] = {{"q.weight", w.wq, inner, d}, {"k.weight", w.wk, kv, d},
                         {"v.weight", w.wv, kv, d},    {"o.weight", w.wo, d, inner},
                         {"q.bias", w.bq, inner, 0},   {"k.bias", w.bk, kv, 0},
                         {"v.bias", w.bv, kv, 0},      {"o.bias", w.bo, d, 0},
                         {"sinks", w.sinks, heads, 0}, {"alibi_slopes", w.alibi_slopes, heads, 0}};
    for (size_t i = 0; i < PER_LAYER; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%zu.%s", layer, list[i].name);
        add(parts, count, name, list[i].data, list[i].rows, list[i].columns);
    }
}

/* The named parts of the block; freed by the caller. */
static part *list_parts(const train_run *run, size_t *count) {
    const attn_model_config *m = &run->model;
    attn_model_params w = attn_model_params_view(m, run->theta);
    part *parts = tool_alloc(m->num_layers * PER_LAYER + OTHERS, sizeof *parts);
    *count = 0;
    add(parts, count, "token_embedding", w.token_embedding, m->vocab, m->d_model);
    add(parts, count, "position_embedding", w.position_embedding, m->context, m->d_model);
    for (size_t l = 0; l < m->num_layers; l++)
        add_layer(parts, count, m, &w, l);
    add(parts, count, "head.weight", w.head_weight, m->vocab, m->d_model);
    add(parts, count, "head.bias", w.head_bias, m->vocab, 0);
    return parts;
}

/* Options that change what the parameters mean, as metadata. A file without one was made without
 * the option. */
typedef struct setting {
    const char *key, *option, *absent;
    char value[32];
} setting;

static void list_settings(const train_run *run, setting settings[SETTINGS]) {
    const train_options *o = &run->options;
    const attn_model_config *m = &run->model;
    settings[0] = (setting){.key = "num_heads", .option = "heads"};
    settings[1] = (setting){.key = "rope", .option = "rope", .absent = "none"};
    settings[2] = (setting){.key = "window", .option = "window", .absent = "0"};
    settings[3] = (setting){.key = "alibi", .option = "alibi", .absent = "false"};
    settings[4] = (setting){.key = "softcap", .option = "softcap", .absent = "0"};
    snprintf(settings[0].value, sizeof settings[0].value, "%zu", m->num_heads);
    snprintf(settings[1].value, sizeof settings[1].value, "%s", train_rope_name((int)m->rope));
    snprintf(settings[2].value, sizeof settings[2].value, "%zu", o->window);
    snprintf(settings[3].value, sizeof settings[3].value, "%s", m->alibi ? "true" : "false");
    snprintf(settings[4].value, sizeof settings[4].value, "%.17g", m->softcap);
}

static int check_settings(const train_run *run, const attn_safetensors *file, const char *path) {
    setting settings[SETTINGS];
    list_settings(run, settings);
    for (size_t i = 0; i < SETTINGS; i++) {
        const setting *own = &settings[i];
        const char *value = attn_safetensors_metadata(file, own->key);
        value = value ? value : own->absent ? own->absent : own->value;
        if (strcmp(value, own->value) != 0)
            return tool_fail("%s: made with --%s %.80s, not %s", path, own->option, value,
                             own->value);
    }
    return TOOL_OK;
}

int train_save(const train_run *run, const char *path) {
    size_t count;
    part *parts = list_parts(run, &count);
    attn_tensor *tensors = tool_alloc(count, sizeof *tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i] = (attn_tensor){.name = parts[i].name,
                                   .dtype = ATTN_DTYPE_F32,
                                   .rank = parts[i].rank,
                                   .dims = parts[i].dims,
                                   .data = parts[i].data};
    setting settings[SETTINGS];
    attn_metadata metadata[SETTINGS];
    list_settings(run, settings);
    for (size_t i = 0; i < SETTINGS; i++)
        metadata[i] = (attn_metadata){settings[i].key, settings[i].value};
    attn_status status = attn_safetensors_save(path, tensors, count, metadata, SETTINGS);
    free(tensors);
    free(parts);
    return status == ATTN_OK ? TOOL_OK : tool_fail("%s", attn_error_message());
}

static bool is_part(const part *parts, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(parts[i].name, name) == 0)
            return true;
    return false;
}

int train_load(train_run *run, const char *path) {
    attn_safetensors file;
    if (attn_safetensors_open(&file, path) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    size_t count;
    part *parts = list_parts(run, &count);
    int status = TOOL_OK;
    for (size_t i = 0; i < count && status == TOOL_OK; i++)
        if (attn_tensor_copy(parts[i].data, attn_safetensors_find(&file, parts[i].name),
                             parts[i].name, ATTN_DTYPE_F32, parts[i].dims,
                             parts[i].rank) != ATTN_OK)
            status = tool_fail("%s: %s", path, attn_error_message());
    for (size_t i = 0; i < file.num_tensors && status == TOOL_OK; i++)
        if (!is_part(parts, count, file.tensors[i].name))
            status = tool_fail("%s: tensor '%.80s' has no place in this model", path,
                               file.tensors[i].name);
    if (status == TOOL_OK)
        status = check_settings(run, &file, path);
    free(parts);
    attn_safetensors_close(&file);
    return status;
}
