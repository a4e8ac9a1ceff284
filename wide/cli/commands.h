// wide/cli/commands.h: the commands of motley-wide. Each takes what is left of its arguments
// without the flags, throws UsageError where that is not what it needs, and Error where it fails.
#pragma once

#include <string>
#include <vector>

namespace motley::wide {

void train(const std::vector<std::string>& files);
void predict(const std::vector<std::string>& files);
void eval(const std::vector<std::string>& files);
void convert(const std::vector<std::string>& files);
void inspect(const std::vector<std::string>& files);
void serve(const std::vector<std::string>& files);

}  // namespace motley::wide
