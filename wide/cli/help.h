// wide/cli/help.h: what --help prints. Each text fits a screen.
#pragma once

namespace motley::wide {

inline constexpr const char* kUsage =
    R"(motley-wide train TRAIN [VALIDATION]   train a model and save it
motley-wide predict MODEL DATA         print a probability for each row
motley-wide eval MODEL DATA            print log loss, AUC and more; for each site, hour, …
motley-wide inspect MODEL [DATA]       print what a model is made of
motley-wide convert FILE -o FILE       data to a binary cache; models to text and from it
motley-wide serve MODEL                answer requests for predictions by HTTP
motley-wide COMMAND --help             the flags of a command
motley-wide formats                    what data may look like, and the flags for it
motley-wide --version
Data is libsvm, libffm, CSV with a header, Criteo or Avazu text, as it is or compressed by gzip or
zstd, or a cache. Several files have commas between them; - is standard input. To begin with:
  motley-wide train clicks.csv --holdout 0.1 -o m --report page.html
  motley-wide inspect m clicks.csv
)";

inline constexpr const char* kFormatsHelp =
    R"(Each format is known by its first lines; --format F holds files to one.
  libsvm   LABEL INDEX:VALUE …            libffm   LABEL FIELD:INDEX:VALUE …
  csv      a header and columns between commas, semicolons or tabs (--delimiter C)
  criteo   label, 13 numbers, 26 categories between tabs       avazu   its header, then CSV
A column named label, click, target, clicked or y is the label; all others are categories, unless
--schema NAME:TYPE,NAME:TYPE,… (or the header, written so) says more. `*` stands for all others.
  label     0 and 1, or -1 and 1; any number where --loss is squared
  category  one feature for each text          list    categories between | or blanks
  number    one feature with this value        log     the same with log(1 + value)
  bucket    a number as a category of numbers about as large
  hour      of a time YYMMDDHH                 weight  how much the row counts        skip
  motley-wide train clicks.csv --schema click:label,id:skip,price:log,tags:list
A model keeps the schema, and finds columns by name. Ids of columns are hashes:
      --bits N         of a hash, 1 to 32 (columns 32; libsvm, libffm: ids as they are)
      --weights FILE   with a weight for each row, one a line
      --cache          keep what was read in FILE.cache, and read that as long as FILE is the same
  -t, --threads N      that read (and train, where the command does)
)";

inline constexpr const char* kTrainHelp = R"(motley-wide train TRAIN [VALIDATION] [flags]
  -m, --model M         lr, svm, fm, ffm or fwfm (fm); -k, --k N   factors, 1 to 256 (8)
      --loss L          logistic, squared, hinge, squared_hinge (svm: the last; else the first)
      --optimizer O     sgd, adagrad, ftrl or adam (adagrad); -b, --batch N   rows per update (1)
  -r, --lr X            learning rate (fm 0.3; lr, svm 0.25; ffm, fwfm 0.1; other losses: README)
      --lr_factors X    of factors (--lr, if given; else fm: 6 by the features of a row, up to 0.6)
  -e, --epochs N        passes over the data, at most (with VALIDATION 100, else 20)
      --l1 X, --l2 X    of linear weights (0, 2e-5); --l1_factors, --l2_factors (0; see README)
      --prior X         precision of factors' prior (fm 2); --average X  see README (fm 0.3)
      --init_scale X    of factors (0.2; ffm 0.66);  -s, --seed N  of initial values, shuffles (1)
  -t, --threads N       threads (1); --deterministic   the same model on any number of threads
      --device NAME     cpu, or cuda (README.md says what);  --nonormalise   take rows as they are
      --patience N      epochs without a better loss before a stop (3);  --folds N   cross-validate
      --holdout X       validate by the last share X of TRAIN;  --validate FILE   is VALIDATION
  -i, --initial_model M go on from this model, which grows by what it does not know
      --online          one pass in order, saved every --online_rows (200000);  --disk   see README
      --positive_weight X   of rows with label 1 (1);  --negative_rate X   rows with label 0 to keep
  -o, --output FILE     the model (NAME.model in this folder);  --report FILE   a page of HTML
  -q, --quiet           print the result only;  data flags: motley-wide formats
Under motley-run, with several workers that all read the same files:
      --sync S          all_reduce, local_sgd, partial_reduce, ad_psgd, backup_workers,
                        parameter_server, eager_solo, eager_majority or wait_avoiding (all_reduce)
      --group_size P    workers that average (2);  --sync_rows N   rows between averages (500)
      --shard           spread features over them: models larger than a worker (README.md)
)";

inline constexpr const char* kPredictHelp = R"(motley-wide predict MODEL DATA [flags]
Prints the probability of label 1 (of models with another loss: the score) for each row of DATA,
one a line, in order; blank lines and comments have none. DATA may have labels, which are not
looked at, or not.
  -o, --output FILE     instead of standard output
  -q, --quiet           no warnings;  data flags: motley-wide formats
)";

inline constexpr const char* kEvalHelp = R"(motley-wide eval MODEL DATA [flags]
Prints log loss, AUC and accuracy (squared loss: RMSE) of MODEL on DATA, which has labels, then
normalised entropy, calibration (predicted by observed clicks), precision and recall at 0.5.
      --by FIELD        the same for each value of a column, or of a field of libffm: the 20 largest
      --report FILE     a page of HTML: ROC, calibration, slices, the heaviest features
  -q, --quiet           no warnings;  data flags: motley-wide formats
)";

inline constexpr const char* kConvertHelp = R"(motley-wide convert FILE -o FILE [flags]
  data          to a binary cache, which all commands take where they take text
  a model       to text: one line for each feature
  text model    to a model: our text, xLearn's (xlearn_train -t), libffm's (ffm-train)
  -o, --output FILE     what to write
      --nonormalise     the xLearn model was trained with --no-norm
  -q, --quiet           print nothing;  data flags: motley-wide formats
)";

inline constexpr const char* kInspectHelp =
    R"(motley-wide inspect MODEL [DATA] [flags]        motley-wide inspect DATA
Prints what a model is, and its heaviest features, with their names where DATA has them: ids of
columns are hashes, and only data knows of what. Of data alone: rows, entries, features.
      --top N           features to list (20)
)";

inline constexpr const char* kServeHelp = R"(motley-wide serve MODEL [flags]
Answers POST /predict with {"predictions":[…]}. The body is rows as predict takes them, or, as
application/json, {"rows":["1:1 7:0.5", …]}, of models of columns {"rows":[{"site":"x"}, …]}.
  curl -d '1:1 7:0.5' http://127.0.0.1:8080/predict
Bad rows are answered by status 400 and {"error":…}, late or too many ones by 503. Also GET
/health, /metrics and /model. SIGINT or SIGTERM: answers what it has, ends with exit code 0.
      --host A, -p, --port N   where to listen (127.0.0.1, 8080; 0: any free port, which is printed)
      --deadline_ms N   for an answer (1000)
      --batch_rows N    of several requests, scored together (4096);  -t, --threads N (1)
      --waiting_rows N  for an answer, at most (1048576);  --connections N   side by side (64)
)";

}  // namespace motley::wide
