// CharacterText of moe/language_model.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "comm/error.h"
#include "moe/language_model.h"
#include "runtime/seed.h"

namespace motley::moe {

CharacterText::CharacterText(const std::string& text) {
  if (text.size() < 1000) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe text: {} characters. Give at least 1000.", text.size()));
  }
  const std::set<unsigned char> symbols(text.begin(), text.end());
  symbols_.assign(symbols.begin(), symbols.end());
  for (const char character : text) {
    const auto at =
        std::distance(symbols.begin(), symbols.find(static_cast<unsigned char>(character)));
    characters_.push_back(static_cast<std::uint16_t>(at));
  }
  learn_ = characters_.size() - characters_.size() / 10;
}

std::vector<std::uint16_t> CharacterText::draw(const LanguageModelOptions& options,
                                               std::int64_t step, std::size_t first,
                                               std::size_t end) const {
  const auto length = static_cast<std::size_t>(options.length) + 1;
  if (end - first < length) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe text: {} characters for sequences of {}. Give a longer text.",
                            end - first, length));
  }
  auto random =
      runtime::make_generator({.seed = options.seed, .purpose = "moe batch", .epoch = step});
  std::vector<std::uint16_t> batch;
  for (int i = 0; i < options.batch; ++i) {
    const auto at = characters_.begin() +
                    static_cast<std::ptrdiff_t>(first + random() % (end - first - length + 1));
    batch.insert(batch.end(), at, at + static_cast<std::ptrdiff_t>(length));
  }
  return batch;
}

std::vector<std::uint16_t> CharacterText::batch(const LanguageModelOptions& options,
                                                std::int64_t step) const {
  return draw(options, step, 0, learn_);
}

std::vector<std::uint16_t> CharacterText::test_batch(const LanguageModelOptions& options,
                                                     std::int64_t step) const {
  return draw(options, step, learn_, characters_.size());
}

double CharacterText::bigram_loss(std::span<const std::uint16_t> characters, int length) const {
  const std::size_t v = symbols_.size(), row = static_cast<std::size_t>(length) + 1;
  std::vector<double> pairs(v * v, 1), firsts(v, static_cast<double>(v));
  for (std::size_t i = 0; i + 1 < learn_; ++i) {
    pairs[characters_[i] * v + characters_[i + 1]] += 1;
    firsts[characters_[i]] += 1;
  }
  double loss = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i + 1 < characters.size(); ++i) {
    if (i % row == row - 1) continue;  // the end of a sequence
    loss -= std::log(pairs[characters[i] * v + characters[i + 1]] / firsts[characters[i]]);
    ++count;
  }
  return count == 0 ? 0 : loss / static_cast<double>(count);
}

CharacterText read_characters(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw_errno("open " + path);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return CharacterText(text);
}

}  // namespace motley::moe
