/* The faults by name. */
#include "gradcheck_composed.h"

static const struct {
    const char *name, *words;
} faults[FAULT_COUNT] = {
    [FAULT_SCALE_DROPPED] = {"scale-dropped", "dQ and dK without the scale"},
    [FAULT_SCALE_TWICE] = {"scale-twice", "dQ and dK with the scale squared"},
    [FAULT_SIGN_FLIPPED] = {"sign-flipped", "dS = P * (dP + rowsum) instead of minus"},
    [FAULT_ROW_SUM_MISSING] = {"row-sum-missing", "dS = P * dP"},
    [FAULT_JACOBIAN_DIAGONAL] = {"jacobian-diagonal", "dS = P * (1 - P) * dP, as for a sigmoid"},
    [FAULT_SOFTMAX_DETACHED] = {"softmax-detached", "dS = 0: the weights taken for constants"},
    [FAULT_DK_TIMES_1_01] = {"dk-times-1.01", "dK one per cent too large"},
    [FAULT_DQ_DK_SWAPPED] = {"dq-dk-swapped", "dK and the dQ of head 0 exchanged"},
    [FAULT_DS_TRANSPOSED] = {"ds-transposed", "dQ and dK from the transpose of dS"},
    [FAULT_DV_TRANSPOSED] = {"dv-transposed", "dV = P dO instead of the transpose of P"},
    [FAULT_LAST_KEY_DROPPED] = {"last-key-dropped", "dK and dV of the last key never written"},
    [FAULT_GROUP_SUM_MISSING] = {"group-sum-missing",
                                 "dK and dV of the last head of a group alone"},
    [FAULT_MASK_IGNORED] = {"mask-ignored", "P computed again without any mask"},
    [FAULT_PADDING_POLARITY] = {"padding-polarity", "P computed again with the padding inverted"},
    [FAULT_CAUSAL_OFF_BY_ONE] = {"causal-off-by-one", "P computed again with one key too many"},
    [FAULT_MASK_HEADS_SWAPPED] = {"mask-heads-swapped", "each head takes the other one's mask"},
    [FAULT_MASKED_ROW_UNIFORM] = {"masked-row-uniform", "a fully masked row counts as uniform"},
    [FAULT_HEADS_TRANSPOSED] = {"heads-transposed", "dO taken for (B,H,T,d) without a transpose"},
    [FAULT_DQ_HEADS_SWAPPED] = {"dq-heads-swapped", "dQ of the heads in the wrong order"},
    [FAULT_WO_SKIPPED] = {"wo-skipped", "dO = dY, not through Wo"},
    [FAULT_WO_TRANSPOSED] = {"wo-transposed", "dO = dY times the transpose of Wo"},
    [FAULT_DWQ_WRONG_INPUT] = {"dwq-wrong-input", "dWq from the queries instead of x"},
    [FAULT_BO_MISSING] = {"bo-missing", "dbo never added"},
    [FAULT_BO_AVERAGED] = {"bo-averaged", "dbo is the mean over tokens, not the sum"},
    [FAULT_BIAS_GRAD_OVERWRITTEN] = {"bias-grad-overwritten", "= instead of += for bias gradients"},
    [FAULT_WEIGHT_GRAD_OVERWRITTEN] = {"weight-grad-overwritten",
                                       "= instead of += for weight gradients"},
    [FAULT_DX_PATH_LOST] = {"dx-path-lost", "dx without the path through the keys"},
    [FAULT_DX_OVERWRITTEN] = {"dx-overwritten", "dx of the last path alone"},
    [FAULT_WINDOW_IGNORED] = {"window-ignored", "P computed again without the window"},
    [FAULT_ROPE_NOT_TURNED_BACK] = {"rope-not-turned-back", "dQ and dK left turned"},
    [FAULT_SOFTCAP_FACTOR_MISSING] = {"softcap-factor-missing", "dS without 1 - tanh(S/c)^2"},
    [FAULT_BIAS_NOT_REDUCED] = {"bias-not-reduced", "dbias of the last query alone"},
    [FAULT_BIAS_SCALED] = {"bias-scaled", "dbias times the scale"},
    [FAULT_ALIBI_SIGN] = {"alibi-sign", "P computed again with + slope |p - j|"},
    [FAULT_SLOPE_GRADIENT_MISSING] = {"slope-gradient-missing", "dslopes never added"},
    [FAULT_SINK_LEFT_OUT] = {"sink-left-out", "P computed again without the sink"},
    [FAULT_SINK_GRADIENT_SIGN] = {"sink-gradient-sign", "dsinks with the other sign"},
    [FAULT_DROPOUT_PATTERN_OTHER] = {"dropout-pattern-other", "another seed in the backward"},
    [FAULT_DROPOUT_UNSCALED] = {"dropout-unscaled", "what dropout keeps is not scaled by 1/(1-p)"},
};

const char *composed_fault_name(composed_fault fault) {
    return faults[fault].name;
}

const char *composed_fault_words(composed_fault fault) {
    return faults[fault].words;
}
