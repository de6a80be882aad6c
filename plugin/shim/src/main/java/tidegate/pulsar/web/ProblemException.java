package tidegate.pulsar.web;

/** A refused request, with the answer that says why. */
public final class ProblemException extends Exception {
    private static final long serialVersionUID = 1L;
    private final transient Problem problem;

    public ProblemException(Problem problem) {
        super(problem.detail());
        this.problem = problem;
    }

    public ProblemException(int status, String title, String detail) {
        this(new Problem(status, title, detail));
    }

    public Problem problem() {
        return problem;
    }
}
