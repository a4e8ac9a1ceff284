// wide/read/tokens.h: libsvm and libffm text to rows.
#pragma once

#include <optional>
#include <string_view>

#include "wide/read/distinct.h"
#include "wide/read/label.h"
#include "wide/read/rows.h"
#include "wide/reader.h"

namespace motley::wide {

class TokenParser final : public TextParser {
 public:
  struct Settings {
    Format format = Format::kLibsvm;  // or kLibffm
    Labels labels = Labels::kBinary;
    int bits = 0;
    bool names = false;
  };
  explicit TokenParser(const Settings& settings) : settings_(settings) {}

  bool has_fields() const override { return settings_.format == Format::kLibffm; }
  void parse(std::string_view text, Rows& out) const override;

 private:
  // What is not blank of a line, and where the line begins.
  struct Line {
    std::string_view text;
    const char* begin = nullptr;
    Place place(std::string_view token) const {
      return {token, static_cast<std::size_t>(token.data() - begin) + 1};
    }
  };

  template <bool kFields>
  const char* quick_row(const char* p, const char* end, Distinct& distinct, Rows& out) const;
  void slow_row(Line line, Rows& out) const;
  void add_label(Line& line, Rows& out) const;
  void add_feature(const Line& line, std::string_view token, Rows& out) const;
  std::uint32_t index(const Line& line, std::string_view token, const char*& p,
                      const char* what) const;
  void end_row(Rows& out) const;

  Settings settings_;
};

// The format of the first row with a feature in these lines, if there is one.
std::optional<Format> format_of_tokens(std::string_view text);

}  // namespace motley::wide
