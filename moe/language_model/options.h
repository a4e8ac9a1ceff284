// moe/language_model/options.h: what the language model's options mean for its gates and experts.
#pragma once

#include "moe/expert_layer.h"
#include "moe/gate_options.h"
#include "moe/language_model.h"

namespace motley::moe {

GateOptions gate_of(const LanguageModelOptions& options);
// An expert's rows are one piece, so that their order, and with it all bits, are those of the batch
// whoever has the tokens.
ExpertLayerOptions experts_of(const LanguageModelOptions& options);

}  // namespace motley::moe
